/** The nodes of a session stand under its id and this attempt. */
export const sessionAttempt = 0
