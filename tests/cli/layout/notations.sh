# Layouts of CuTe and Triton are read as they are, shown as chains, compared and drawn.
loadplan layout --chain 'Sw<3,4,3> o (8,128):(128,1)'
loadplan layout --chain '(8,32):(33,1)' --compare 'N=8 K=32 -> N K=33'
loadplan layout --chain '((32,4),4):((16,4),1)' --compare scale_128x4
loadplan layout --chain '((32,4),4):((16,4),1)' --compare scale_8x4 --shape 128,4 || echo "exit $?"
loadplan layout --chain 'register = [[0, 1], [0, 2]], lane = [[1, 0], [2, 1]]' --unit 16 --format=json
loadplan layout --chain '(4,4):(4,1) o (2,3):(3,1)' || echo "exit $?"
loadplan layout --chain '[[0, 1], [0, 1]]' || echo "exit $?"
loadplan layout --chain '(8,32):(33,1)' --format=svg -o room.svg && grep -c '<rect' room.svg
"$PYTHON" "$SUITE/make_order.py" rotated rotated 8 4
"$PYTHON" "$SUITE/make_order.py" padded padded 8 4
loadplan layout --identify padded --shape 8,4
loadplan layout --chain '(8,4):(5,1)' --identify padded
loadplan layout --chain 'N(r i=4) K=4 -> r (i K+i)' --identify rotated --shape 8,4
