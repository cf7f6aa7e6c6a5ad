# config.json as Python writes it, and where something else stands in its place.
$PYTHON "$SUITE/write_model.py" model
good=$(cat model/config.json)
tried() {
    timeout 60 loadplan -q record --checkpoint model -o x.lpt -f && echo "recorded" || echo "exit $?"
}
echo "${good%\}}, \"time_step_limit\": [0.0, Infinity], \"a\": -Infinity, \"b\": NaN, \"Infinity\": \"a \\\"NaN\"}" > model/config.json
tried
echo "${good%\}}, \"vocab_size\": NaN}" > model/config.json
tried
echo "${good%\}}, \"vocab_size\": 100, \"vocab_size\": 99}" > model/config.json
tried
echo "[$good]" > model/config.json
tried
printf 'version https://git-lfs.github.com/spec/v1\n' > model/config.json
tried
rm model/config.json
mkfifo model/config.json
tried
