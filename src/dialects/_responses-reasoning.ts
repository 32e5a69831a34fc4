/** Version 1: the text as UTF-8 in base64url. A later encoding gets another number, and this one is still read. */
const prefix = 'millrace-1.'

/**
 * What stands for reasoning in `encrypted_content`. It hides nothing, because the summary beside it says the same: it is
 * for clients that send back only this field of a reasoning item.
 */
export function encodeReasoning(text: string): string {
  return prefix + Buffer.from(text).toString('base64url')
}

/** Undefined for what another server wrote. */
export function decodeReasoning(encoded: string): string | undefined {
  if (!encoded.startsWith(prefix)) return undefined
  return Buffer.from(encoded.slice(prefix.length), 'base64url').toString()
}
