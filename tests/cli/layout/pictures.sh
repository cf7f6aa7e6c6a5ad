"$PYTHON" "$SUITE/pictures.py"
