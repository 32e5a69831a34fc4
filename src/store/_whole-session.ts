/** Stands in the table of rewards for a session as a whole: a key cannot hold a null. */
export const wholeSession = -1
