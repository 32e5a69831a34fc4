import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { metricFamilies, schemaUrl, spanAttributes } from '../../src/telemetry/index.ts'
import { page, root, tableRows } from '../support/pages.ts'

const documentation = await page('docs/telemetry.md')
const dashboard = await readFile(join(root, 'docs/grafana/millrace.json'), 'utf8')
const families = Object.values(metricFamilies)

test('the documentation lists every metric with its type and labels, and no other metric', () => {
  const rows = tableRows(documentation, 'Metrics').map(([name, type, labels]) => [name, type, labels])
  expect(rows).toEqual(families.map(({ name, kind, labels }) => [name, kind, labels.join(', ')]))
})

test('the documentation lists every span attribute with its type, and the version of the conventions', () => {
  const rows = tableRows(documentation, 'Spans').filter(([name = '']) => /^[a-z_]+\.[a-z_.]+$/.test(name))
  expect(rows.map(([name, type]) => [name, type])).toEqual(Object.entries(spanAttributes))
  expect(documentation.text).toContain(`version ${schemaUrl.split('/').at(-1)}`)
})

test('the dashboard shows every metric, and no unknown one', () => {
  const { panels } = JSON.parse(dashboard) as { panels: { targets?: { expr: string }[]; title: string }[] }
  const expressions = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))
  const named = expressions.flatMap((expr) => expr.match(/\b(millrace|process)_[a-z0-9_]+/g) ?? [])
  const known = families.map(({ name, kind }) => (kind === 'histogram' ? `${name}_bucket` : name))
  expect(new Set(named)).toEqual(new Set(known))
  // What an expression groups by is a label of what it shows; `instance` and `le` are Prometheus' own.
  for (const expr of expressions) {
    const family = families.find(({ name }) => expr.includes(name))
    const [, by = ''] = /by \(([^)]*)\)/.exec(expr) ?? []
    for (const label of by.split(', ').filter((each) => each !== '')) {
      expect(['instance', 'le', ...(family?.labels ?? [])], expr).toContain(label)
    }
  }
})

test('the dashboard has a row for each part of the system', () => {
  const { panels } = JSON.parse(dashboard) as { panels: { type: string; title: string; id: number }[] }
  const rows = panels.filter(({ type }) => type === 'row').map(({ title }) => title)
  expect(rows).toEqual([
    'Throughput and outcomes',
    'Models',
    'Tools',
    'Event loops',
    'Workers',
    'Store',
    'Offload pools',
    'Serving',
    'Gateway',
    'Spans',
  ])
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
})
