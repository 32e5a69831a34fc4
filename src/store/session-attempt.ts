/** The attempt number under which the nodes of a session are stored. */
export const sessionAttempt = 0
