try() {
    code=0
    loadplan undump bad.txt -o bad.lpt || code=$?
    echo "exit $code"
}
text=$TESTS/fuzz/corpus/dump/small
sed 's/1000/2000/' "$text" > bad.txt
try
sed 's/dst=0/dst=1/' "$text" > bad.txt
try
sed 's/map=8/map=8 why/' "$text" > bad.txt
try
sed 's/records=1/records=2/' "$text" > bad.txt
try
head -c 60 "$text" > bad.txt
try
sed 's/$/\r/' "$text" > bad.txt
try
ls
