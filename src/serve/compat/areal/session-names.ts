/** What AReaL's clients call a session: the task, and the gateway's own name of the session, which is found in it again. */
export function wireName(task: string, session: string): string {
  return `${task}-${session}`
}

const ownName = /ses_[0-9a-z]{10}[\w-]{12}$/

/** The gateway's name of a session, or the name itself if it has another form. */
export function ownNameIn(name: string): string {
  return ownName.exec(name)?.[0] ?? name
}
