# Where a file should be: a pipe that nobody writes to, a folder, a device, a terabyte of nothing. Each is told at once.
mkdir pipe folder zeros settings
mkfifo pipe/model.safetensors settings/config.json list
mkdir folder/model.safetensors
truncate -s 1T zeros/model.safetensors zeros/x.lpt zeros/text zeros/config.json
"$PYTHON" "$TESTS/cli/record/write_model.py" model
cp model/model.safetensors settings
cp model/model.safetensors zeros/kept.safetensors
loadplan record -q --checkpoint model -o x.lpt
try() {
    code=0
    timeout 20 loadplan "$@" 2>said || code=$?
    echo "$1: $code: $(cat said)"
}
for place in pipe folder zeros zeros/x.lpt /dev/zero; do
    try info "$place"
done
try record --checkpoint settings -o y.lpt
mv zeros/kept.safetensors zeros/model.safetensors
try record --checkpoint zeros -o y.lpt
try undump zeros/text -o y.lpt
try undump list -o y.lpt
try check x.lpt --suppress list
try check x.lpt --suppress zeros/text
try record --checkpoint model -f -o folder
try replay x.lpt --checkpoint pipe -o out
ls
