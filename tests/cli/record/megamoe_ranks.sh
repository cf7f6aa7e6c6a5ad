"$PYTHON" "$SUITE/write_model.py" ckpt --experts 8
loadplan record --checkpoint ckpt --ep 4 -o ep.lpt
loadplan record --checkpoint ckpt --tp 1 --dp 2 --ep 2 --slots 5 --rank 0-1 -o slots.lpt
loadplan record --checkpoint ckpt/model.safetensors --config ckpt/config.json --loader megamoe --target sm90 -o one.lpt
loadplan check ep.lpt
loadplan info one.lpt | grep -E 'loader|target|config.n_routed'
