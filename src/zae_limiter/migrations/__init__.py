"""From older layouts of a DynamoDB table to the one this version uses: nothing lost, however often it is cut short.

``running.migrate`` is the way in. ``history`` lists the migrations, ``old_*`` know how things were stored,
``conversions`` change them one by one, ``counting`` knows what must be the same before and after, ``working`` goes
over the table.
"""
