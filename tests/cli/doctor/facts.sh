echo x >file
loadplan doctor .
