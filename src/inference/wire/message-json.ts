import type { Message } from '../../schema/index.ts'

// Messages never change after they were made, so their JSON is kept. An entry is dropped with its message.
const written = new WeakMap<Message, string>()

/** The JSON text of a message. It is written once, however often the message is sent, hashed and stored. */
export function messageJson(message: Message): string {
  let json = written.get(message)
  if (json === undefined) {
    json = JSON.stringify(message)
    written.set(message, json)
  }
  return json
}
