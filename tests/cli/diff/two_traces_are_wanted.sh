loadplan diff one.lpt && exit 9
loadplan diff --against one.lpt two.lpt three.lpt
