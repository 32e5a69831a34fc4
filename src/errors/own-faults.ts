import type { ErrorCode } from './codes.ts'

/**
 * What clients are told of a fault of the server's own, at every door. Where its record is kept, and what mends it, is for
 * whoever runs it, and in the log.
 */
export const ownFaults: Readonly<Partial<Record<ErrorCode, string>>> = {
  internal: 'something went wrong in the server',
  disk_full: 'the server has no room to record anything more; tell whoever runs it',
  store_failed: 'the record of this server cannot be read or written; tell whoever runs it',
  run_gone: 'the record of this server was deleted or moved away; tell whoever runs it',
}
