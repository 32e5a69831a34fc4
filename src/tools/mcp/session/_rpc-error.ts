import { isJsonObject, type Json } from '../../../schema/index.ts'

/** JSON-RPC's code for an error of the server's own. */
const internalError = -32_603

/**
 * The error in a server's answer, which by the protocol has a number and a text. Not all servers keep to that: any other value is
 * given as it is. Undefined for `null`, which some servers write beside a result.
 */
export function rpcErrorOf(error: Json): { readonly code: number; readonly message: string } | undefined {
  if (error === null) return undefined
  const { code, message } = isJsonObject(error) ? error : { message: error }
  return {
    code: typeof code === 'number' ? code : internalError,
    message: typeof message === 'string' ? message : JSON.stringify(message ?? error),
  }
}
