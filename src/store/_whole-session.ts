/** The node number of a reward for a session as a whole: a key cannot hold a null. */
export const wholeSession = -1
