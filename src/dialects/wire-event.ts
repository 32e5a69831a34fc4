import type { WireEvent } from './server-dialect.ts'

/** An event as it goes over the wire. */
export function eventText({ name, data }: WireEvent): string {
  const text = data === '[DONE]' ? data : JSON.stringify(data)
  return name === undefined ? `data: ${text}\n\n` : `event: ${name}\ndata: ${text}\n\n`
}
