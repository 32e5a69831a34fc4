import type { Draft } from '../kit/index.ts'
import type { DialectRequest } from './server-dialect.ts'

/** A request while it is read. Fields that the client left out are not set. */
export type RequestDraft = Draft<DialectRequest>
