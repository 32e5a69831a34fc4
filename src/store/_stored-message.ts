import type { Message } from '../schema/index.ts'

const roles: ReadonlySet<unknown> = new Set<Message['role']>(['system', 'developer', 'user', 'assistant', 'tool'])

/** A message from its JSON. It was valid when it was written; only what readers rely on is checked: an object that has a role. */
export function storedMessage(text: string): Message {
  const value: unknown = JSON.parse(text)
  if (!isMessage(value)) throw new Error('it is no message')
  return value
}

function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && 'role' in value && roles.has(value.role)
}
