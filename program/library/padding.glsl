// The sequence of a row of a batch that is there to fill it: nothing is done for it.
const uint PADDING = 0xFFFFFFFFu;
