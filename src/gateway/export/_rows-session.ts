import type { StoredSession } from '../../store/index.ts'

/** What every row says about the session it is from, so that each can be read alone. */
export interface SessionFacts {
  readonly session: string
  readonly group: string
  readonly tenant: string
  readonly task: string | null
  /** The session has ended: there will be no more of it. */
  readonly sealed: boolean
}

export function sessionFacts(session: StoredSession): SessionFacts {
  const task = session.data['taskId']
  return { ...plainFacts(session), ...(typeof task === 'string' && { task }) }
}

/** Of one that is damaged: what it is about may be what cannot be read. */
export function factsOfDamaged(session: StoredSession): SessionFacts {
  try {
    return sessionFacts(session)
  } catch {
    return plainFacts(session)
  }
}

function plainFacts({ id, group, tenant, end }: StoredSession): SessionFacts {
  return { session: id, group, tenant, task: null, sealed: end !== undefined }
}
