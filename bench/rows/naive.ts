interface NaiveRow {
  readonly reward: number | null
  ids: number[]
  mask: number[]
  logprobs: number[]
}

interface Rollout {
  readonly reward: number | null
  readonly nodes: readonly {
    readonly tokens?: {
      readonly promptIds: readonly number[]
      readonly ids: readonly number[]
      readonly logprobs: readonly number[]
    }
  }[]
}

/** Rows as one writes them without much thought: parse the line, compare the prompt with what came before, and go on from it. */
export function mergeRollout(line: string): NaiveRow[] {
  const { reward, nodes } = JSON.parse(line) as Rollout
  const rows: NaiveRow[] = []
  for (const { tokens } of nodes) {
    if (!tokens) continue
    const { promptIds, ids, logprobs } = tokens
    let row = rows.at(-1)
    if (!row?.ids.every((id, at) => id === promptIds[at])) {
      row = { reward, ids: [], mask: [], logprobs: [] }
      rows.push(row)
    }
    for (const id of promptIds.slice(row.ids.length)) {
      row.ids.push(id)
      row.mask.push(0)
      row.logprobs.push(0)
    }
    row.ids.push(...ids)
    row.mask.push(...ids.map(() => 1))
    row.logprobs.push(...logprobs)
  }
  return rows
}
