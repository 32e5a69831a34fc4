import type { StoredSession } from '../../store/index.ts'
import type { Tree, TreeFacts } from './_rows-trees.ts'

/** Facts about the session that every row repeats, so that each row can be read alone. */
export interface SessionFacts {
  readonly session: string
  readonly group: string
  readonly tenant: string
  readonly task: string | null
  /** Whether the session has ended, so that no more rows of it will come. */
  readonly sealed: boolean
}

/** Facts about the session and the tree that every row of a reply repeats. */
export interface RowFacts extends SessionFacts, TreeFacts {}

export type FactsOfRow = (sample: { readonly tree: Tree }) => RowFacts

export function sessionFacts(session: StoredSession): SessionFacts {
  const task = session.data['taskId']
  return { ...plainFacts(session), ...(typeof task === 'string' && { task }) }
}

/** The facts of a damaged session, whose data itself may be what cannot be read. */
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
