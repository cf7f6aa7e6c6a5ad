# What downloads leave, and what people give by mistake: the error says what it is and what to do.
write="$PYTHON $SUITE/write_safetensors.py"
refused() { loadplan "$@" && echo "accepted $*"; code=$?; test $code = 3 || echo "exit $code" >&2; }
zeros() { printf '%0*d' "$1" 0 | tr 0 '\000'; }
: > empty.safetensors
zeros 4096 > zeros.safetensors
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' > lfs.safetensors
printf '# xet version 0\nfilesize = 1\n' > xet.safetensors
printf '\n<html><body>404</body></html>' > page.safetensors
printf 'Entry not found' > answer.safetensors
printf '{"error":"Repository not found"}' > json.safetensors
{ printf 'PK\003\004'; zeros 96; } > zip.safetensors
{ printf '\200\004\225'; zeros 96; } > pickle.safetensors
{ printf 'GGUF\003'; zeros 96; } > gguf.safetensors
{ printf '\211HDF\r\n'; zeros 96; } > keras.safetensors
{ printf '\037\213\010'; zeros 96; } > gzip.safetensors
for file in empty zeros lfs xet page answer json zip pickle gguf keras gzip; do
    refused info $file.safetensors
done
mkdir index
for text in lfs page empty; do
    cp $text.safetensors index/model.safetensors.index.json
    refused info index
done
cp lfs.safetensors trace.lpt
refused check trace.lpt
refused undump lfs.safetensors -o made.lpt
# a checkpoint that is given for a trace, larger than any trace, and than the memory that its text could take
$write large.safetensors a:U8:4294967296x2048 --data 0
truncate -s 8796093022208 large.safetensors
refused check large.safetensors
refused undump large.safetensors -o made.lpt
{ printf '# %0600d\n' 0; echo 'loadplan-trace 1000'; } > comment.txt
refused undump comment.txt -o made.lpt
# folders
mkdir -p part partial torch cache/snapshots aria gap
$write part/model-00001-of-00002.safetensors a:U8:4
refused info part
loadplan info part/model-00001-of-00002.safetensors
$write whole.safetensors a:U8:4
cp whole.safetensors partial/model.safetensors.incomplete
refused info partial
: > torch/pytorch_model.bin
refused info torch
refused info cache
mkdir -p hub/models--org--name/snapshots pipeline/unet flax
refused info hub
refused info hub/models--org--name
: > pipeline/model_index.json
refused info pipeline
for name in flax_model.msgpack tf_model.h5 weights.npz model.ckpt model.onnx; do
    : > flax/$name
    refused info flax
    rm flax/$name
done
mkdir cache/snapshots/main
ln -s ../../blobs/00 cache/snapshots/main/model.safetensors
loadplan info cache/snapshots/main || echo "exit $?"
cp whole.safetensors aria/model.safetensors
: > aria/model.safetensors.aria2
refused info aria
