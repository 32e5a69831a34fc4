import { readFileSync } from 'node:fs'
import { createSecureContext, type SecureContext } from 'node:tls'
import { MillraceError } from '../../errors/index.ts'

/** Reads and parses the file once; without a context, every new connection would parse it again. */
export function readAuthority(caFile: string): SecureContext {
  try {
    return createSecureContext({ ca: readFileSync(caFile) })
  } catch (error) {
    const message = `the certificate authority ${caFile} cannot be read: ${String(error)}. Give caFile a PEM file.`
    throw new MillraceError('config_invalid', message, { cause: error })
  }
}
