$PYTHON "$SUITE/write_safetensors.py" x.safetensors a:F32:2
loadplan info x.safetensors -o report.txt
cat report.txt
loadplan info x.safetensors -o report.txt && exit 99 || test $? = 2
loadplan info x.safetensors -o report.txt -f --format=json
grep -c '"kind": "checkpoint"' report.txt
ls
