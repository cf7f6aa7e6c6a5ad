write="$PYTHON $SUITE/write_safetensors.py"
refused() { loadplan info "$1" && echo "accepted $1"; test $? = 3 && echo "exit 3" >&2; }
$write short.safetensors a:U8:4 b:F32:2 --data 7
refused short.safetensors
$write long.safetensors a:U8:4 --data 5
refused long.safetensors
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' > lfs.safetensors
refused lfs.safetensors
mkdir empty several sharded
refused empty
$write several/a.safetensors
$write several/b.safetensors
refused several
$write sharded/s1.safetensors a:U8:4
echo '{"weight_map":{"a":"s1.safetensors","b":"s2.safetensors"}}' > sharded/model.safetensors.index.json
refused sharded
$write sharded/s2.safetensors c:U8:4
refused sharded
echo '{"weight_map":{"a":"s1.safetensors","b":"s1.safetensors"}}' > sharded/model.safetensors.index.json
refused sharded
echo '{"weight_map":{"a":"../s1.safetensors"}}' > sharded/model.safetensors.index.json
refused sharded
