export { errorCodes } from './codes.ts'
export type { ErrorCode } from './codes.ts'
export { MillraceError } from './millrace-error.ts'
export type { WireError } from './millrace-error.ts'
