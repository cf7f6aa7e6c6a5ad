exits() { wanted=$1; shift; loadplan record "$@" && echo "accepted: $*"; test $? = "$wanted"; }
exits 4 --checkpoint nowhere -o x.lpt
exits 4 --checkpoint some-lab/Some-Model-8B -o x.lpt
"$PYTHON" "$SUITE/write_model.py" ckpt
echo '{"model_type": "whisper"}' > other.json
exits 3 --checkpoint ckpt --config other.json -o x.lpt
echo 'not json' > other.json
exits 3 --checkpoint ckpt --config other.json -o x.lpt
exits 4 --checkpoint ckpt --config missing.json -o x.lpt
exits 3 --checkpoint ckpt --config /dev/null -o x.lpt
echo '{"model_type": "llama", "num_attention_heads": 8, "head_dim": 16}' > other.json
exits 3 --checkpoint ckpt --config other.json -o x.lpt
exits 4 --checkpoint ckpt -o no/such/folder/x.lpt
ls
