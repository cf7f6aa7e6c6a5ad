loadplan repaly x.lpt
