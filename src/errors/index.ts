export { type ErrorCode, errorCodes, MillraceError, ownFaults, type WireError } from './millrace-error.ts'
