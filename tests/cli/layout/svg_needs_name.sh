loadplan layout --format=svg
