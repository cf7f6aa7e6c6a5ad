loadplan layout mxfp4_l1_weight --shape E=2,H=512,I=384 --format=json -o x.json
tr -d ' \n' <x.json
