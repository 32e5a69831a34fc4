/** A server-sent event as it goes over the wire. Neither text may hold a line end. */
export function sseEvent(data: string, name?: string): string {
  return name === undefined ? `data: ${data}\n\n` : `event: ${name}\ndata: ${data}\n\n`
}
