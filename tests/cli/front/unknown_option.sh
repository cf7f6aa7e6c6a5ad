loadplan info --formt=json x
