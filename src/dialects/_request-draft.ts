import type { Draft } from '../kit/index.ts'
import type { DialectRequest } from './server-dialect.ts'

/** A request while it is read: what a client left out is not there at all. */
export type RequestDraft = Draft<DialectRequest>
