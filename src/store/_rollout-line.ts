/** A line of `rollouts.jsonl`: the record with its messages put in. All texts are JSON already. */
export function rolloutLine(record: string, messages: readonly string[], extra = ''): string {
  const open = record.slice(0, record.lastIndexOf('}'))
  const comma = open.trimEnd().endsWith('{') ? '' : ','
  return `${open}${comma}"messages":[${messages.join(',')}]${extra}}\n`
}
