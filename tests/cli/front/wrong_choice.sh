loadplan info --format=xml x
