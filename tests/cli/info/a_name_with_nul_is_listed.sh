$PYTHON "$SUITE/write_safetensors.py" nul.safetensors 'a\0b:U8:4' '\x1b[31m:U8:4'
loadplan info nul.safetensors
loadplan info nul.safetensors --format=json -q | grep -c 'a\\u0000b'
