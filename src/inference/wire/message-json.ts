import type { Message } from '../../schema/index.ts'

// Messages never change after they were made, so their JSON does not either. The entry goes with its message.
const written = new WeakMap<Message, string>()

/** The one JSON text of a message: sent, hashed and stored as it is, and written once however often it is sent. */
export function messageJson(message: Message): string {
  let json = written.get(message)
  if (json === undefined) {
    json = JSON.stringify(message)
    written.set(message, json)
  }
  return json
}
