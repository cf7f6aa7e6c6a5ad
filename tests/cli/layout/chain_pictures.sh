"$PYTHON" "$SUITE/chain_pictures.py"
