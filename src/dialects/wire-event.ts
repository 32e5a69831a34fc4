import { sseEvent } from '../kit/index.ts'
import type { WireEvent } from './server-dialect.ts'

/** An event as it goes over the wire. */
export function eventText({ name, data }: WireEvent): string {
  return sseEvent(data === '[DONE]' ? data : JSON.stringify(data), name)
}
