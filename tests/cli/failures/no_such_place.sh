# Places that cannot be written: a folder that is not there, one that takes no files, a file where a folder should be.
text=$TESTS/fuzz/corpus/dump/everything
echo file >file
for place in absent/x.lpt /proc/x.lpt file/x.lpt; do
    code=0
    loadplan undump "$text" -o "$place" 2>said || code=$?
    echo "exit $code: $(cat said)"
done
