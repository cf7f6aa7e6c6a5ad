loadplan info ./nowhere
