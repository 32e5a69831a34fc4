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

export function sessionFacts({ id, group, tenant, data, end }: StoredSession): SessionFacts {
  const task = data['taskId']
  return { session: id, group, tenant, task: typeof task === 'string' ? task : null, sealed: end !== undefined }
}
