"""From the table's stream to usage snapshots: what operators read and bill from.

``stream_records`` says what a record of the stream means, ``processor`` counts a batch of them, ``follower`` brings
them where no Lambda does. All of it is plans over the store's own requests: nothing here speaks to a network.
"""
