import { MillraceError } from '../errors/index.ts'
import { isLoopback } from '../kit/index.ts'

/** A key that other machines can try at leisure must not be guessed. */
const minKeyCharacters = 16

/** What a header carries as it is, and nobody trims: a key from a file often has a line end that no client can send. */
const sendable = /^[!-~]+( +[!-~]+)*$/

export interface DoorKey {
  /** How it is called where something is wrong with it. */
  readonly name: string
  readonly key: string
}

/** Keys that clients can send; a door to other machines needs a real lock. `missing` says what one is and how to give it. */
export function requireKeys(host: string, keys: readonly DoorKey[], missing: string): void {
  const unsendable = keys.find(({ key }) => !sendable.test(key))
  if (unsendable) {
    throw new MillraceError(
      'config_invalid',
      `${unsendable.name} begins or ends with white space, or has characters other than plain ASCII, so that no client can send it: look where it comes from`,
    )
  }
  // Only this machine can reach it.
  if (isLoopback(host)) return
  const open = `listening on ${host} lets other machines in`
  if (keys.length === 0) {
    throw new MillraceError('config_invalid', `${open}, so it needs ${missing}, or listen on 127.0.0.1`)
  }
  const weak = keys.find(({ key }) => key.length < minKeyCharacters)
  if (!weak) return
  throw new MillraceError(
    'config_invalid',
    `${open}, and ${weak.name} has fewer than ${minKeyCharacters} characters: make one with \`openssl rand -base64 32\``,
  )
}
