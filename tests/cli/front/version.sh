test "$(loadplan -qV)" = 0.1.0
loadplan --version
