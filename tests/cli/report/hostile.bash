# good.lpt, and evil.lpt whose names, operations and files try to be markup.
. "$SUITE/../check/twin.bash"
write_good
twin evil 's/^(header loader) .*/\1 "<img src=x onerror=alert(1)>"/
s|layers.1.up|layers.1.</title></style><script>alert(1)</script>|g
s|loader.py|\\u0022 onload=alert(1) x=\\u0022|g
/^copy .*layers.0.experts.1.w2_input_scale/d
s|^END.*|refuse "layers.0.experts.1.w2_input_scale" -> "layers.0.scales" op="<svg/onload=x>" reason="]]>\&amp;--><script>" at "javascript:alert(1)":412\
END names=8 scopes=1 records=7 derives=2 refusals=1|'
