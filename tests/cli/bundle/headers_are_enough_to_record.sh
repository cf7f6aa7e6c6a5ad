"$PYTHON" "$SUITE/../record/write_model.py" ckpt --experts 4
loadplan info ckpt --save-headers ckpt.headers
loadplan info ckpt --save-headers ckpt.headers || echo "exit $?"
loadplan info ckpt --save-headers ckpt.headers -f -q
[ "$(stat -c %s ckpt.headers)" -lt 4000 ] && echo "small"
loadplan info ckpt --families 1
loadplan -q record --checkpoint ckpt --tp 1 --rest decline -o full.lpt
echo "--- the payload is gone; config.json came along"
mv ckpt elsewhere
loadplan info ckpt.headers --families 1
loadplan -q record --checkpoint ckpt.headers --tp 1 --rest decline -o light.lpt
loadplan diff full.lpt light.lpt
loadplan check light.lpt --checkpoint ckpt.headers --fail-on=never | head -n 1
echo "--- but there is nothing to load"
loadplan replay light.lpt --checkpoint ckpt.headers -o out || echo "exit $?"
loadplan info ckpt.headers --save-headers again.headers || echo "exit $?"
loadplan info light.lpt --save-headers again.headers || echo "exit $?"
